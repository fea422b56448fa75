package resp_test

import (
	"fmt"
	"strings"

	"github.com/weirlimit/weir/internal/resp"
)

func ExampleReader() {
	r := resp.NewReader(strings.NewReader("ECHO \"hello world\"\r\n*1\r\n$4\r\nPING\r\n"), resp.Limits{})
	for {
		args, err := r.Read()
		if err != nil {
			break
		}
		fmt.Printf("%q\n", args)
	}
	fmt.Printf("%q\n", resp.RESP2.AppendNull(resp.AppendBulk(nil, "hello")))
	// Output:
	// ["ECHO" "hello world"]
	// ["PING"]
	// "$5\r\nhello\r\n$-1\r\n"
}
