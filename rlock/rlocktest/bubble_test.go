package rlocktest_test

import "testing"

// TestBubbleExample runs the test that the example "Bubble" shows.
func TestBubbleExample(t *testing.T) { checkCompactionStops(t) }
