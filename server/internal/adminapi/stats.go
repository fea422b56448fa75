package adminapi

import (
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/weirlimit/weir/server/internal/call"
)

// How many are listed of who is refused most.
const (
	defaultTop = 10
	maxTop     = 100
)

// statsAnswer is figures of this process.
type statsAnswer struct {
	UptimeS int64          `json:"uptime_s"`
	Version string         `json:"version"`
	Store   map[string]any `json:"store"`
	Top     []topAnswer    `json:"top"`
}

// topAnswer is somebody who was refused often lately: at most Denied times, and at least
// AtLeast.
type topAnswer struct {
	Policy  string `json:"policy"`
	Key     string `json:"key"`
	Denied  int64  `json:"denied"`
	AtLeast int64  `json:"at_least"`
}

// stats answers GET /admin/v1/stats.
func (a *api) stats(x *exchange) (any, error) {
	n, err := x.top(defaultTop)
	if err != nil {
		return nil, err
	}
	out := statsAnswer{UptimeS: int64(time.Since(a.began) / time.Second), Version: a.Version, Store: figures(a.Stats()), Top: []topAnswer{}}
	for _, e := range a.Top(n) {
		policy, key, _ := strings.Cut(e.Label, "\x00")
		out.Top = append(out.Top, topAnswer{Policy: policy, Key: key, Denied: e.Count, AtLeast: e.Count - e.Error})
	}
	return out, nil
}

// figures returns statistics with names as the rest of the API has them: of structs, such as
// memstore.Stats, the fields in snake_case.
func figures(stats map[string]any) map[string]any {
	out := map[string]any{}
	for name, value := range stats {
		v := reflect.ValueOf(value)
		if v.Kind() == reflect.Struct {
			fields := map[string]any{}
			for i := range v.NumField() {
				fields[snakeCase(v.Type().Field(i).Name)] = v.Field(i).Interface()
			}
			value = fields
		}
		out[name] = value
	}
	return out
}

// snakeCase returns a Go name, such as OverflowHits, as overflow_hits.
func snakeCase(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// top returns how many are asked for, or the default.
func (x *exchange) top(byDefault int) (int, error) {
	text, given := x.params["top"]
	if !given {
		return byDefault, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n > maxTop {
		return 0, call.Invalid(`parameter "top" must be an integer from 0 to %d`, maxTop)
	}
	return int(n), nil
}
