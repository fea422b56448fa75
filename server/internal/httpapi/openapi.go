package httpapi

import (
	_ "embed"
	"net/http"
)

// openAPI describes /v1 to programs (OpenAPI 3.1). Its test holds it to the handlers.
//
//go:embed openapi.yaml
var openAPI []byte

// serveOpenAPI answers GET /openapi.yaml.
func serveOpenAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml") // RFC 9512
	w.Write(openAPI)                                   // an error means that the caller is gone
}
