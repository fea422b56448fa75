package memstore_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/store/memstore"
)

var tokens = weir.Must(memstore.NewKeyed(weir.PerMinute(10_000)))

// complete calls a language model, which says afterwards how many tokens it used.
func complete(prompt string) (answer string, used int64) { return "42", 150 }

// ask stays inside the model's quota of tokens per minute: it reserves what the answer may
// cost at most, and settles what it did cost.
func ask(ctx context.Context, model, prompt string) (string, error) {
	r, err := tokens.Reserve(ctx, model, 4000, time.Minute)
	if err != nil {
		return "", err // over the quota: a *weir.DeniedError says until when
	}
	defer r.Cancel(ctx) // if complete panics; changes nothing after Commit
	answer, used := complete(prompt)
	_, err = r.Commit(ctx, used)
	return answer, err
}

func ExampleKeyed_Reserve() {
	answer, err := ask(context.Background(), "large", "What is six times seven?")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer, tokens.Take("large", 0).Remaining)
	// Output: 42 9850
}
