package tiered

// BlockSize is blockSize.
var BlockSize = blockSize
