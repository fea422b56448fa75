package adminapi

// settingsAnswer is the configuration that is in force.
type settingsAnswer struct {
	Version  string       `json:"version"`
	Reload   reloadAnswer `json:"reload"`
	Settings []Setting    `json:"settings"`
}

type reloadAnswer struct {
	Error string `json:"error"` // "" if the last reload went well
}

// settings answers GET /admin/v1/config.
func (a *api) settings(c *call) (any, error) {
	if err := c.noParams(); err != nil {
		return nil, err
	}
	out := settingsAnswer{Version: a.Version, Reload: reloadAnswer{c.state.Reload}, Settings: c.state.Effective}
	if out.Settings == nil {
		out.Settings = []Setting{}
	}
	return out, nil
}
