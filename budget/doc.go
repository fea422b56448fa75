// Package budget stays inside a provider's quota: what a call costs, what was spent, and what the provider
// says about it.
package budget
