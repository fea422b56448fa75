package secret_test

import (
	"fmt"

	"github.com/weirlimit/weir/secret"
)

func ExampleNew() {
	password := secret.New("open sesame")
	fmt.Printf("%v %q %+v\n", password, password, struct{ Password secret.Secret }{password})
	fmt.Println(password.Matches("open sesame"), len(password.Reveal()))
	// Output:
	// *** "***" {Password:***}
	// true 11
}
