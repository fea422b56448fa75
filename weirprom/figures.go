package weirprom

import "github.com/prometheus/client_golang/prometheus"

// figures is a collector of metrics that are read from a snapshot S at each scrape.
type figures[S any] struct {
	read func() S
	list []figure[S]
}

type figure[S any] struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(S) float64
}

func (f *figures[S]) Describe(to chan<- *prometheus.Desc) {
	for _, x := range f.list {
		to <- x.desc
	}
}

func (f *figures[S]) Collect(to chan<- prometheus.Metric) {
	s := f.read()
	for _, x := range f.list {
		to <- prometheus.MustNewConstMetric(x.desc, x.kind, x.value(s))
	}
}

// counter adds a counter, gauge a gauge. label is empty, or a name and its value.
func (f *figures[S]) counter(name, help string, value func(S) float64, label ...string) {
	f.list = append(f.list, figure[S]{newDesc(name, help, label), prometheus.CounterValue, value})
}

func (f *figures[S]) gauge(name, help string, value func(S) float64, label ...string) {
	f.list = append(f.list, figure[S]{newDesc(name, help, label), prometheus.GaugeValue, value})
}

func newDesc(name, help string, label []string) *prometheus.Desc {
	labels := prometheus.Labels{}
	if len(label) == 2 {
		labels[label[0]] = label[1]
	}
	return prometheus.NewDesc(name, help, nil, labels)
}

// forgiven is the name and help of the one metric that tables and a tier share. Their
// label values differ, so all can be registered, and the sum is how many units were admitted
// beyond the limits.
const (
	forgiven     = "weir_forgiven_units_total"
	forgivenHelp = "Units admitted beyond the limits because there was no room to record them, by cause."
)
