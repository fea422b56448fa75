// Package identity authenticates the daemon's callers: clients, which request decisions, and
// operators, who administer. Both authenticate with a token, a client also with a
// certificate. Tokens are looked up by their SHA-256, so the time of a lookup does not reveal
// how much of a token was right.
//
// Grants say what a client may use, and scopes what an operator may do. Failures counts and
// logs those who are refused, and throttles the wrong tokens of an address. A valid token is never
// refused for what others at its address send.
package identity
