package mockrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// maxFaultBody is the length of the longest description of a fault.
const maxFaultBody = 64 << 10

// AddFault puts a fault into force and returns its id.
func (p *Provider) AddFault(f Fault) (id int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.faults.add(f, p.nowLocked())
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
	RetryAfter wireTime `json:"retry_after,omitempty"`
	Delay      wireTime `json:"delay,omitempty"`
	On         wireTime `json:"on,omitempty"`
	Off        wireTime `json:"off,omitempty"`
}

type wireTime time.Duration

// MarshalText is that of encoding.TextMarshaler.
func (t wireTime) MarshalText() ([]byte, error) { return []byte(time.Duration(t).String()), nil }

// UnmarshalText is that of encoding.TextUnmarshaler.
func (t *wireTime) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*t = wireTime(d)
	return err
}

// MarshalJSON writes times as text.
func (f Fault) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireFault{plainFault(f), wireTime(f.RetryAfter), wireTime(f.Delay), wireTime(f.On), wireTime(f.Off)})
}

// UnmarshalJSON reads what MarshalJSON writes. Unknown members are an error.
func (f *Fault) UnmarshalJSON(text []byte) error {
	var w wireFault
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&w); err != nil {
		return err
	}
	*f = Fault(w.plainFault)
	f.RetryAfter, f.Delay, f.On, f.Off = time.Duration(w.RetryAfter), time.Duration(w.Delay), time.Duration(w.On), time.Duration(w.Off)
	return nil
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
