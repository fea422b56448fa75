package adminapi

// settingsAnswer is the configuration that is in force.
type settingsAnswer struct {
	Version  string       `json:"version"`
	Reload   reloadAnswer `json:"reload"`
	API      API          `json:"api"`
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
	out := settingsAnswer{Version: a.Version, Reload: reloadAnswer{c.state.Reload}, API: c.state.API, Settings: c.state.Effective}
	if out.Settings == nil {
		out.Settings = []Setting{}
	}
	return out, nil
}
