package budget_test

import (
	"errors"
	"fmt"

	"github.com/weirlimit/weir/budget"
)

func ExampleTable_Cost() {
	table, err := budget.BuiltinTable("alchemy")
	if err != nil {
		panic(err)
	}
	cost, err := table.Cost("eth_sendRawTransaction")
	fmt.Println(cost, err)

	// Refuse methods that the table does not list.
	strict, err := table.With(budget.Overrides{Unknown: &budget.Unknown{Refuse: true}})
	if err != nil {
		panic(err)
	}
	_, err = strict.Cost("eth_newMethod")
	fmt.Println(errors.Is(err, budget.ErrUnknownMethod), strict.UnknownCalls())
	// Output:
	// map[cu:40 throughput:250] <nil>
	// true 1
}

func ExampleTable_Batch() {
	table, err := budget.BuiltinTable("alchemy")
	if err != nil {
		panic(err)
	}
	cost, err := table.Batch([]string{"eth_blockNumber", "eth_getLogs", "eth_getLogs"})
	fmt.Println(cost["cu"], err)
	// Output: 130 <nil>
}
