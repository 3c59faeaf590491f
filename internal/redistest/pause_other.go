//go:build !unix

package redistest

import "errors"

func pause(*process) error { return errors.ErrUnsupported }

// resume has nothing to do where nothing can be paused.
func resume(*process) error { return nil }
