// Package harness measures limiters side by side.
//
// A [Case] names its contenders; [Measure] runs them in turns, many short runs
// each, and keeps the best run of each. On a shared machine a slow run measures
// the neighbours and the fastest one the code, and turns make a slow minute affect
// all contenders alike. Ratios within one Case are therefore worth more than the
// figures themselves.
//
// A [Survey] measures what is no time per call, such as memory per key; [Ask] measures
// one subject after the other, or lets them take turns.
//
// It is not [testing.B] because that measures one function until it is done and
// then the next, with minutes between the two that are to be compared.
//
// To add cases, write a package beside this one that returns them, as packages
// single, keyed, pacing, redisbacked, overhttp and services do, and append them in
// cmd/compare.
package harness
