package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The prefixes of the exporter's variables: those for all signals, and those for traces, which win.
const (
	forAll    = "OTEL_EXPORTER_OTLP_"
	forTraces = "OTEL_EXPORTER_OTLP_TRACES_"
)

// InEnvironment reports whether the environment turns tracing on: it names a collector, and neither
// OTEL_SDK_DISABLED nor OTEL_TRACES_EXPORTER excludes the exporter.
func InEnvironment() bool {
	exporters := strings.Split(variable("OTEL_TRACES_EXPORTER"), ",")
	isChosen := exporters[0] == "" || slices.ContainsFunc(exporters, func(name string) bool { return strings.TrimSpace(name) == "otlp" })
	return exporterVariable("ENDPOINT") != "" && isChosen && !isDisabled()
}

func isDisabled() bool { return strings.EqualFold(variable("OTEL_SDK_DISABLED"), "true") }

func variable(name string) string { return strings.TrimSpace(os.Getenv(name)) }

// exporterVariable returns a setting of the exporter.
func exporterVariable(name string) string {
	if value := variable(forTraces + name); value != "" {
		return value
	}
	return variable(forAll + name)
}

// An EnvironmentError is everything that is wrong with the environment. It repeats no values, which may
// be secret.
type EnvironmentError struct{ Problems []error }

// Error returns the problems, one in each line.
func (e *EnvironmentError) Error() string { return errors.Join(e.Problems...).Error() }

func (e *EnvironmentError) wrong(name, problem string) {
	if problem != "" {
		e.Problems = append(e.Problems, errors.New(name+": "+problem))
	}
}

// environment is what Config leaves open.
type environment struct {
	endpoint string // with its path, "" if there is none
	headers  map[string]string
	timeout  time.Duration
	zip      bool
	tls      *tls.Config // nil for the default
	sampling *sampling   // nil for the default
}

// defaultTimeout is how long the collector has for one request.
const defaultTimeout = 10 * time.Second

// readEnvironment reads the variables that c leaves open.
func readEnvironment(c *Config) (environment, error) {
	out, bad := environment{timeout: defaultTimeout}, &EnvironmentError{}
	for _, prefix := range []string{forAll, forTraces} {
		if c.Endpoint == "" {
			out.readEndpoint(prefix, bad)
		}
		if len(c.Headers) == 0 {
			out.readHeaders(prefix+"HEADERS", bad)
		}
		out.readTimeout(prefix+"TIMEOUT", bad)
		out.readCompression(prefix+"COMPRESSION", bad)
	}
	if c.Endpoint == "" {
		readProtocol(bad)
	}
	if c.Sample == nil {
		out.readSampler(bad)
	}
	out.readTLS(bad)
	readResource(bad)
	if len(bad.Problems) > 0 {
		return out, bad
	}
	return out, nil
}

func (e *environment) readEndpoint(prefix string, bad *EnvironmentError) {
	name := prefix + "ENDPOINT"
	value := variable(name)
	if value == "" {
		return
	}
	u, problem := parseEndpoint(value)
	if problem != "" {
		bad.wrong(name, problem)
		return
	}
	if e.endpoint = value; prefix == forAll {
		e.endpoint = u.JoinPath(tracesPath).String()
	}
}

// readHeaders reads name=value pairs, separated by commas. Values are percent-encoded.
func (e *environment) readHeaders(name string, bad *EnvironmentError) {
	value := variable(name)
	if value == "" {
		return
	}
	e.headers = map[string]string{}
	for pair := range strings.SplitSeq(value, ",") {
		header, text, found := strings.Cut(pair, "=")
		header = strings.TrimSpace(header)
		text, err := url.PathUnescape(strings.TrimSpace(text))
		if !found || err != nil || headerProblem(header, text) != "" {
			bad.wrong(name, "must be headers such as x-api-key=value, separated by commas, with other characters than printable ASCII and commas as %2C")
			return
		}
		e.headers[header] = text
	}
}

func (e *environment) readTimeout(name string, bad *EnvironmentError) {
	value := variable(name)
	if value == "" {
		return
	}
	ms, err := strconv.ParseUint(value, 10, 31)
	if err != nil || ms == 0 {
		bad.wrong(name, "must be milliseconds, such as 10000")
		return
	}
	e.timeout = time.Duration(ms) * time.Millisecond
}

func (e *environment) readCompression(name string, bad *EnvironmentError) {
	switch variable(name) {
	case "":
	case "none":
		e.zip = false
	case "gzip":
		e.zip = true
	default:
		bad.wrong(name, "must be gzip or none")
	}
}

// readProtocol refuses endpoints that are for other protocols.
func readProtocol(bad *EnvironmentError) {
	if p := exporterVariable("PROTOCOL"); p != "" && p != "http/protobuf" {
		bad.wrong(forAll+"PROTOCOL", "must be http/protobuf: set "+forTraces+"PROTOCOL to that, and "+forTraces+"ENDPOINT to where the collector takes it, such as http://127.0.0.1:4318/v1/traces")
	}
}

// readTLS reads the certificates that the collector's must be signed by, and the client's own.
func (e *environment) readTLS(bad *EnvironmentError) {
	authorities, cert, key := exporterVariable("CERTIFICATE"), exporterVariable("CLIENT_CERTIFICATE"), exporterVariable("CLIENT_KEY")
	if authorities == "" && cert == "" && key == "" {
		return
	}
	e.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if authorities != "" {
		e.tls.RootCAs = x509.NewCertPool()
		pem, err := os.ReadFile(authorities)
		switch {
		case err != nil:
			bad.wrong(forAll+"CERTIFICATE", err.Error())
		case !e.tls.RootCAs.AppendCertsFromPEM(pem):
			bad.wrong(forAll+"CERTIFICATE", "must be a file of certificates, in PEM")
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			bad.wrong(forAll+"CLIENT_CERTIFICATE", "must be a file with a certificate, and "+forAll+"CLIENT_KEY one with its key, in PEM: "+err.Error())
		}
		e.tls.Certificates = []tls.Certificate{pair}
	}
}

// readSampler reads the sampler by its standard name.
func (e *environment) readSampler(bad *EnvironmentError) {
	name := strings.ToLower(variable("OTEL_TRACES_SAMPLER"))
	if name == "" {
		return
	}
	root, isParentBased := strings.CutPrefix(name, "parentbased_")
	e.sampling = &sampling{parentBased: isParentBased}
	switch root {
	case "always_on":
		e.sampling.ratio = 1
	case "always_off":
	case "traceidratio":
		e.sampling.ratio = readRatio(bad)
	default:
		bad.wrong("OTEL_TRACES_SAMPLER", "must be always_on, always_off or traceidratio, or one of them after parentbased_")
	}
}

func readRatio(bad *EnvironmentError) float64 {
	const name = "OTEL_TRACES_SAMPLER_ARG"
	ratio := 1.0
	if value := variable(name); value != "" {
		var err error
		if ratio, err = strconv.ParseFloat(value, 64); err != nil || sampleProblem(ratio) != "" {
			bad.wrong(name, "must be between 0 and 1")
		}
	}
	return ratio
}

// readResource reports attributes that the SDK would not accept.
func readResource(bad *EnvironmentError) {
	const name = "OTEL_RESOURCE_ATTRIBUTES"
	if variable(name) == "" {
		return
	}
	for pair := range strings.SplitSeq(variable(name), ",") {
		key, value, found := strings.Cut(pair, "=")
		_, err := url.PathUnescape(strings.TrimSpace(value))
		if !found || err != nil || strings.TrimSpace(key) == "" {
			bad.wrong(name, "must be attributes such as deployment.environment.name=production, separated by commas, with commas in values as %2C")
			return
		}
	}
}
