package harness

// BusyTime is busyTime, for tests.
var BusyTime = busyTime
