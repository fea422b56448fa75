// Package identity knows who may call the daemon: clients, which ask for decisions, and
// operators, who administer. Both prove who they are with a token, a client also with a
// certificate. Tokens are compared by their SHA-256, so how long it takes says nothing
// about how much of one was right. Who fails too often has to wait.
package identity
