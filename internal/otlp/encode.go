package otlp

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
)

// What follows is ExportTraceServiceRequest of OTLP as JSON: names in lower camel case,
// ids in hexadecimal, 64-bit integers as texts, enums as numbers.
type (
	request struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	resource struct {
		Attributes []keyValue `json:"attributes"`
	}
	scopeSpans struct {
		Scope scope      `json:"scope"`
		Spans []spanJSON `json:"spans"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	spanJSON struct {
		TraceID                string     `json:"traceId"`
		SpanID                 string     `json:"spanId"`
		ParentSpanID           string     `json:"parentSpanId,omitempty"`
		Flags                  uint32     `json:"flags"`
		Name                   string     `json:"name"`
		Kind                   int        `json:"kind"`
		StartTimeUnixNano      int64      `json:"startTimeUnixNano,string"`
		EndTimeUnixNano        int64      `json:"endTimeUnixNano,string"`
		Attributes             []keyValue `json:"attributes,omitempty"`
		DroppedAttributesCount int        `json:"droppedAttributesCount,omitempty"`
		Status                 *status    `json:"status,omitempty"`
	}
	status struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code"`
	}
	keyValue struct {
		Key   string   `json:"key"`
		Value anyValue `json:"value"`
	}
	anyValue struct { // one of them
		StringValue *string `json:"stringValue,omitempty"`
		IntValue    *int64  `json:"intValue,string,omitempty"`
		BoolValue   *bool   `json:"boolValue,omitempty"`
	}
)

const (
	kindServer  = 2 // SPAN_KIND_SERVER
	statusError = 2 // STATUS_CODE_ERROR

	// Flags: those of the traceparent, then whether it is known that the parent is in
	// another process, then whether it is.
	remoteKnown  = 0x100
	remoteParent = 0x200
)

func newResource(c Config) resource {
	all := map[string]string{}
	maps.Copy(all, c.Attributes)
	all["service.name"] = cmp.Or(c.ServiceName, "weir")
	if c.ServiceVersion != "" {
		all["service.version"] = c.ServiceVersion
	}
	var r resource
	for _, key := range slices.Sorted(maps.Keys(all)) {
		value := all[key]
		r.Attributes = append(r.Attributes, keyValue{key, anyValue{StringValue: &value}})
	}
	return r
}

// encode returns the body of a batch.
func (e *Exporter) encode(batch []*Span) []byte {
	spans := make([]spanJSON, 0, len(batch))
	for _, s := range batch {
		spans = append(spans, s.json())
	}
	body, err := json.Marshal(request{[]resourceSpans{{e.resource, []scopeSpans{{e.scope, spans}}}}})
	if err != nil {
		panic(err) // of texts and numbers, json makes no errors
	}
	return body
}

func (s *Span) json() spanJSON {
	j := spanJSON{
		TraceID: hex.EncodeToString(s.trace[:]), SpanID: hex.EncodeToString(s.id[:]),
		Flags: sampledFlag | remoteKnown, Name: s.name, Kind: kindServer,
		StartTimeUnixNano: s.start.UnixNano(), EndTimeUnixNano: s.start.UnixNano() + int64(s.took),
		DroppedAttributesCount: s.dropped,
	}
	if s.parent != (SpanID{}) {
		j.ParentSpanID = hex.EncodeToString(s.parent[:])
		j.Flags |= remoteParent
	}
	for _, a := range s.attributes {
		j.Attributes = append(j.Attributes, keyValue{a.key, a.value()})
	}
	if s.failed {
		j.Status = &status{Message: s.message, Code: statusError}
	}
	return j
}

func (a *attribute) value() anyValue {
	switch a.kind {
	case number:
		return anyValue{IntValue: &a.number}
	case boolean:
		yes := a.number == 1
		return anyValue{BoolValue: &yes}
	}
	return anyValue{StringValue: &a.text}
}
