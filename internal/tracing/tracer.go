package tracing

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Tracer makes spans and sends them. Its methods may be called at the same time. A nil one makes none.
type Tracer struct {
	provider *sdktrace.TracerProvider // set by New, like the rest
	tracer   trace.Tracer
	exporter *exporter
	sampling sampling
}

// New returns a tracer that sends spans once Start is called. It is nil if OTEL_SDK_DISABLED is set. The
// error is an *EnvironmentError if the configuration is valid and the environment is not.
func New(c Config) (*Tracer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if isDisabled() {
		c.Log.Info("tracing is off: OTEL_SDK_DISABLED is set")
		return nil, nil
	}
	env, err := readEnvironment(&c)
	if err != nil {
		return nil, err
	}
	exporter, err := newExporter(&c, &env)
	if err != nil {
		return nil, err
	}
	origin, err := c.resource()
	if err != nil {
		return nil, err
	}
	sampling := c.sampling(&env)
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(origin), sdktrace.WithSampler(sampling.sampler()), sdktrace.WithRawSpanLimits(limits()))
	return &Tracer{
		provider: provider,
		tracer:   provider.Tracer("github.com/weirlimit/weir", trace.WithInstrumentationVersion(c.Version), trace.WithSchemaURL(semconv.SchemaURL)),
		exporter: exporter,
		sampling: sampling,
	}, nil
}

// Start begins to send spans. Call it once. Spans that end before are dropped.
func (t *Tracer) Start() {
	if t != nil {
		t.provider.RegisterSpanProcessor(sdktrace.NewBatchSpanProcessor(t.exporter, bounded))
	}
}

// maxQueue bounds OTEL_BSP_MAX_QUEUE_SIZE. A span takes about 1 KiB.
const maxQueue = 1 << 16

// bounded keeps the settings of the environment within bounds.
func bounded(o *sdktrace.BatchSpanProcessorOptions) {
	o.MaxQueueSize = within(o.MaxQueueSize, maxQueue, sdktrace.DefaultMaxQueueSize)
	o.MaxExportBatchSize = min(within(o.MaxExportBatchSize, maxQueue, sdktrace.DefaultMaxExportBatchSize), o.MaxQueueSize)
	o.BatchTimeout = within(o.BatchTimeout, time.Minute, sdktrace.DefaultScheduleDelay*time.Millisecond)
	o.ExportTimeout = within(o.ExportTimeout, time.Minute, sdktrace.DefaultExportTimeout*time.Millisecond)
}

// within returns n, at most most, or the default if n is not positive.
func within[T int | time.Duration](n, most, otherwise T) T {
	if n <= 0 {
		return otherwise
	}
	return min(n, most)
}

// Shutdown sends the spans that are left until ctx ends, each batch once. What is left then is lost. Spans
// that end later are dropped.
func (t *Tracer) Shutdown(ctx context.Context) {
	if t == nil {
		return
	}
	t.exporter.stop()
	defer t.exporter.close()
	defer context.AfterFunc(ctx, t.exporter.abort)()
	_ = t.provider.Shutdown(context.WithoutCancel(ctx)) // the exporter logs what is lost
}

// limits bounds spans. Nothing that callers choose is in them, so that is the last line of defense.
func limits() sdktrace.SpanLimits {
	const maxText = 256
	l := sdktrace.NewSpanLimits() // those of the environment
	if l.AttributeValueLengthLimit < 0 {
		l.AttributeValueLengthLimit = maxText
	}
	return l
}

func (c *Config) sampling(env *environment) sampling {
	switch {
	case c.Sample != nil:
		return sampling{parentBased: true, ratio: *c.Sample}
	case env.sampling != nil:
		return *env.sampling
	}
	return sampling{parentBased: true, ratio: DefaultSample}
}

// resource returns the attributes of the program. Those of the environment win.
func (c *Config) resource() (*resource.Resource, error) {
	return resource.New(context.Background(),
		resource.WithTelemetrySDK(),
		resource.WithAttributes(semconv.ServiceName("weir"), semconv.ServiceVersion(cmp.Or(c.Version, "unknown"))),
		resource.WithFromEnv())
}
