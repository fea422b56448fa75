package memstore

import (
	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/algo"
	"github.com/weirlimit/weir/internal/storeapi"
)

// takeWords is a TakeAll whose states are all words of rows, which needs no ledgers. It returns
// false, with nothing changed, if one is elsewhere: if a key is new or twice in the batch, has
// reservations, or is under other limits.
//
// As in any lock session, a word is out of the table until all are decided, and other callers
// who read the mark wait for the lock.
func (ls *lockSession) takeWords(b *weir.Batch) bool {
	fits := true
	for i := range ls.charges {
		c := &ls.charges[i]
		f := found{limits: c.limits}
		if c.limits.word != nil {
			f.word = ls.t.find(c.h, c.limits, c.key)
		}
		if f.word == nil {
			ls.returnWords(false)
			return false
		}
		if f.was = f.word.Swap(algo.Mark); f.was == algo.Mark {
			ls.returnWords(false)
			return false
		}
		var ok bool
		f.next, ok = c.limits.word.Take(f.was, ls.now, c.cost) // as it was, if it does not fit
		b.Decisions[i] = storeapi.Decision(c.limits.word.Verdict(f.next, ls.now, c.cost, ok), weir.Instant(ls.now))
		ls.words = append(ls.words, f)
		fits = fits && ok
	}
	ls.returnWords(fits)
	return true
}

// returnWords puts the words back, with the charges or without.
func (ls *lockSession) returnWords(charged bool) {
	for i := range ls.words {
		f := &ls.words[i]
		if charged {
			f.word.Store(f.next)
		} else {
			f.word.Store(f.was)
		}
	}
	clear(ls.words)
	ls.words = ls.words[:0]
}
