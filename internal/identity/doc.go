// Package identity authenticates the daemon's callers: clients, which request decisions, and
// operators, who administer. Both authenticate with a token, a client also with a
// certificate. Tokens are looked up by their SHA-256, so the time of a lookup does not reveal
// how much of a token was right. An address that fails too often is throttled.
package identity
