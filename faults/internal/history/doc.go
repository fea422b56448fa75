// Package history judges what a fleet of limiters has decided, from outside.
//
// A client notes of each decision when it sent the question and when it had the answer.
// The decision was made at some moment in between, and nobody can tell at which. So
// [Excess] tells by how much a limit was exceeded whatever these moments were: it may say
// too little, by what comes back within a round trip and less than one unit more, but
// never too much.
package history
