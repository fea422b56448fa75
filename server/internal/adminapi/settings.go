package adminapi

// settingsAnswer is the configuration that is in force.
type settingsAnswer struct {
	Version string `json:"version"`
	Reload  struct {
		Error string `json:"error"` // "" if the last reload went well
	} `json:"reload"`
	API      API       `json:"api"`
	Settings []Setting `json:"settings"`
}

// settings answers GET /admin/v1/config.
func (a *api) settings(x *exchange) (any, error) {
	out := settingsAnswer{Version: a.Version, API: x.state.API, Settings: x.state.Effective}
	out.Reload.Error = x.state.Reload
	if out.Settings == nil {
		out.Settings = []Setting{}
	}
	return out, nil
}
