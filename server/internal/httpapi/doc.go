// Package httpapi speaks the daemon's JSON protocol over HTTP.
//
//	POST /v1/check    {"policy","key","cost"?,"peek"?} -> 200 with a decision
//	GET  /healthz     200 while the process runs; /healthcheck is the same
//	GET  /readyz      200, or 503 once the daemon stops
//	GET  /            a page for people
//
// # Guarantees
//
//   - A decision is a 200, admitted or refused; all its fields are always there.
//   - Whatever is not a decision is a problem (RFC 9457). A 4xx has charged
//     nothing; a 503 means that the limiter could not say, and may have charged.
//   - A body means one thing or is refused: fields twice, names in other letter
//     case, text after the object and broken Unicode are all errors.
//   - Keys appear in no header and in no log above debug level.
//   - Pages of other origins cannot charge (http.CrossOriginProtection), nor can
//     names that were pointed at loopback (the Host header must be loopback).
//
// # Limits
//
// A body is at most 64 KiB and is never decompressed. The package knows no
// clients yet, so it must be served on loopback only; package server sees to that.
package httpapi
