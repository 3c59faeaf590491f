package script

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// ErrReply says that a server answered a script with something that the script
// cannot answer. What was executed is then unknown.
var ErrReply = errors.New("unexpected reply to a script")

func unexpected(script string, reply []any) error {
	const enough = 8
	if len(reply) > enough {
		reply = reply[:enough]
	}
	return fmt.Errorf("%w: %s answered %.200q", ErrReply, script, fmt.Sprint(reply))
}

func integers(reply []any) ([]int64, error) {
	numbers := make([]int64, len(reply))
	for i, element := range reply {
		n, ok := element.(int64)
		if !ok {
			return nil, ErrReply
		}
		numbers[i] = n
	}
	return numbers, nil
}

func threeIntegers(reply []any) (first, second, third int64, err error) {
	if len(reply) < 3 {
		return 0, 0, 0, ErrReply
	}
	var numbers [3]int64
	for i := range numbers {
		n, ok := reply[i].(int64)
		if !ok {
			return 0, 0, 0, ErrReply
		}
		numbers[i] = n
	}
	return numbers[0], numbers[1], numbers[2], nil
}

// milliseconds converts a TTL as PTTL answers it; any negative answer stays
// negative, and one beyond what a Duration can hold becomes the longest.
func milliseconds(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(n, -1), most)) * time.Millisecond
}
