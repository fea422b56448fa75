package svg

// Path is a line through points, with gaps. The zero value is empty.
type Path struct {
	d    []byte
	open bool // the next LineTo goes on
}

// LineTo goes on to a point, or starts there if the path is empty or at a gap. A point
// between two gaps is a dot if the style has round line caps.
func (p *Path) LineTo(x, y float64) {
	if p.open {
		p.d = append(p.d, "L"+coord(x)+" "+coord(y)...)
		return
	}
	// A line of no length is a dot, where a lone start would be nothing.
	p.d = append(p.d, "M"+coord(x)+" "+coord(y)+"h0"...)
	p.open = true
}

// Gap lifts the pen.
func (p *Path) Gap() { p.open = false }
