// Package httpapi serves the daemon's JSON API over HTTP.
//
//	POST /v1/check    {"policy","key","cost"?,"peek"?} -> 200 with a decision
//	GET  /healthz     200 while the process runs; /healthcheck is the same
//	GET  /readyz      200, or 503 once the daemon stops
//	GET  /            a page for people
//
// # Guarantees
//
//   - A decision is a 200, admitted or refused; all its fields are always there.
//   - Errors are problems (RFC 9457). A 4xx has charged nothing; a 503 means that no decision
//     could be made, and may have charged.
//   - Ambiguous bodies are refused: duplicate fields, names in other letter
//     case, text after the object and broken Unicode are all errors.
//   - Keys appear in no header and in no log above debug level.
//   - Pages of other origins cannot charge (http.CrossOriginProtection), nor can
//     names that were pointed at loopback (the Host header must be loopback).
//
// # Limits
//
// A body is at most 64 KiB and is never decompressed.
package httpapi
