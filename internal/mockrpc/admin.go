package mockrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxFaultBody is the length of the longest description of a fault.
const maxFaultBody = 64 << 10

// AddFault puts a fault into force and returns its id.
func (p *Provider) AddFault(f Fault) (id int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkCaller(f); err != nil {
		return 0, err
	}
	return p.faults.add(f, p.nowLocked())
}

// checkCaller returns an error if no request can have a fault, since nobody has its key or account.
func (p *Provider) checkCaller(f Fault) error {
	var problems problems
	if _, known := p.byKey[f.Key]; !known && f.Key != "" {
		keys := slices.DeleteFunc(p.Keys(), func(key string) bool { return key == "" }) // of requests without one
		problems.add(f.Key, "no account has this key"+thereAre(keys), "key")
	}
	names := make([]string, len(p.accounts))
	for i, a := range p.accounts {
		names[i] = a.name
	}
	if f.Account != "" && !slices.Contains(names, f.Account) {
		problems.add(f.Account, "there is no such account"+thereAre(names), "account")
	}
	return errors.Join(problems...)
}

// thereAre lists the first names of a list.
func thereAre(names []string) string {
	const most = 20
	if len(names) == 0 {
		return ""
	}
	text := "; there are " + strings.Join(names[:min(most, len(names))], ", ")
	if len(names) > most {
		text += ", …"
	}
	return text
}

// RemoveFault ends a fault. It returns false if there is none of that id, or none any more.
func (p *Provider) RemoveFault(id int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.faults.byID[id]
	delete(p.faults.byID, id)
	return known
}

// ClearFaults ends all faults.
func (p *Provider) ClearFaults() {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.faults.byID)
}

// Faults returns the faults in force by their ids. The Count of a fault is what is left of it.
func (p *Provider) Faults() map[int64]Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make(map[int64]Fault, len(p.faults.byID))
	for id, f := range p.faults.byID {
		list[id] = f.Fault
		if f.Count > 0 {
			left := f.Fault
			left.Count = f.left
			list[id] = left
		}
	}
	return list
}

// plainFault has the fields of a Fault and none of its methods.
type plainFault Fault

// wireFault is a Fault with its times as text, such as "2s".
type wireFault struct {
	plainFault
	RetryAfter string `json:"retry_after,omitempty"`
	Delay      string `json:"delay,omitempty"`
	On         string `json:"on,omitempty"`
	Off        string `json:"off,omitempty"`
}

// wireTime is a time of a fault in both forms.
type wireTime struct {
	name string
	text *string
	time *time.Duration
}

func wireTimes(w *wireFault, f *Fault) []wireTime {
	return []wireTime{{"retry_after", &w.RetryAfter, &f.RetryAfter}, {"delay", &w.Delay, &f.Delay}, {"on", &w.On, &f.On}, {"off", &w.Off, &f.Off}}
}

// MarshalJSON writes times as text.
func (f Fault) MarshalJSON() ([]byte, error) {
	w := wireFault{plainFault: plainFault(f)}
	for _, t := range wireTimes(&w, &f) {
		if *t.time != 0 {
			*t.text = t.time.String()
		}
	}
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON writes. Unknown members are an error.
func (f *Fault) UnmarshalJSON(text []byte) error {
	var w wireFault
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&w); err != nil {
		return plainError(err)
	}
	*f = Fault(w.plainFault)
	for _, t := range wireTimes(&w, f) {
		if *t.text == "" {
			continue
		}
		d, err := time.ParseDuration(*t.text)
		if err != nil {
			return fmt.Errorf("%s %q: must be a time with its unit, such as \"2s\"", t.name, *t.text)
		}
		*t.time = d
	}
	return nil
}

// plainError returns an error of package json in the words of JSON.
func plainError(err error) error {
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("unknown field %s; docs/mock.md has all of them", name)
	}
	bad, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	field := bad.Field[strings.LastIndexByte(bad.Field, '.')+1:]
	if field == "" {
		return errors.New("a fault is an object, such as {\"status\":503}")
	}
	must := "a whole number, and not negative"
	switch {
	case slices.Contains([]string{"retry_after", "delay", "on", "off"}, field):
		must = "a time as text, such as \"2s\""
	case bad.Type.Kind() == reflect.String:
		must = "text"
	case bad.Type.Kind() == reflect.Bool:
		must = "true or false"
	}
	return fmt.Errorf("%s: must be %s", field, must)
}

func (p *Provider) serveStats(w http.ResponseWriter, _ *http.Request) {
	answer{status: http.StatusOK, json: p.Stats()}.write(w)
}

// listedFault is a fault in the list of all.
type listedFault struct {
	ID    int64 `json:"id"`
	Fault Fault `json:"fault"`
}

func (p *Provider) listFaults(w http.ResponseWriter, _ *http.Request) {
	faults := p.Faults()
	list := []listedFault{}
	for _, id := range slices.Sorted(maps.Keys(faults)) {
		list = append(list, listedFault{id, faults[id]})
	}
	answer{status: http.StatusOK, json: list}.write(w)
}

func (p *Provider) addFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFaultBody))
	if err == nil {
		err = json.Unmarshal(body, &f)
	}
	var id int64
	if err == nil {
		id, err = p.AddFault(f)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	answer{status: http.StatusCreated, json: listedFault{id, f}}.write(w)
}

func (p *Provider) clearFaults(w http.ResponseWriter, _ *http.Request) {
	p.ClearFaults()
	answer{status: http.StatusNoContent}.write(w)
}

func (p *Provider) removeFault(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	switch {
	case err != nil:
		refuse(w, http.StatusBadRequest, errors.New("the id of a fault is a number"))
	case !p.RemoveFault(id):
		refuse(w, http.StatusNotFound, fmt.Errorf("no fault has the id %d", id))
	default:
		answer{status: http.StatusNoContent}.write(w)
	}
}

func refuse(w http.ResponseWriter, status int, err error) {
	answer{status: status, json: map[string]string{"error": err.Error()}}.write(w)
}
