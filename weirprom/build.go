package weirprom

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// NewBuildInfo returns a collector of the version that runs, for example "v1.2.3".
func NewBuildInfo(version string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "weir_build_info",
		Help:        "Always 1; the labels are the versions of weir and of Go.",
		ConstLabels: prometheus.Labels{"version": clean(version), "goversion": clean(runtime.Version())},
	}, func() float64 { return 1 })
}
