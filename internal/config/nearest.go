package config

import (
	"fmt"
	"strings"
)

// unknown says that there is no such name, and which was meant or could be.
func unknown(problem, name string, names []string) string {
	if near := nearest(name, names); near != "" {
		return fmt.Sprintf("%s: did you mean %s?", problem, near)
	}
	if len(names) == 0 {
		return problem
	}
	return fmt.Sprintf("%s: there are %s", problem, strings.Join(names, ", "))
}

// nearest returns the name that has the fewest letters wrong, "" if none is like it.
func nearest(name string, names []string) string {
	best, least := "", 1+max(1, len(name)/3)
	for _, n := range names {
		if d := distance(strings.ToLower(name), strings.ToLower(n)); d < least {
			best, least = n, d
		}
	}
	return best
}

// distance returns how many letters have to be inserted, removed, replaced or swapped
// with the next to make b of a.
func distance(a, b string) int {
	const most = 64
	if len(a) > most || len(b) > most {
		return most
	}
	var d [most + 1][most + 1]int // of the beginnings of a and b with so many letters
	for i := range len(a) + 1 {
		for j := range len(b) + 1 {
			if i == 0 || j == 0 {
				d[i][j] = i + j
				continue
			}
			change := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

// either lists choices: "a, b or c".
func either(choices []string) string {
	if len(choices) < 2 {
		return strings.Join(choices, "")
	}
	return strings.Join(choices[:len(choices)-1], ", ") + " or " + choices[len(choices)-1]
}
