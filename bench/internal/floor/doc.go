// Package floor has servers that answer and decide nothing: what any answer costs at least.
package floor
