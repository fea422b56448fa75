// Package svg writes small pictures: charts for reports, with nothing in them but
// text and shapes, so that they can be shown anywhere.
//
//	pic := svg.New(300, 60, "A picture", "What it shows, in a sentence.", svg.Style)
//	pic.Rect("page", 0, 0, 300, 60)
//	pic.Text("title", svg.Start, 10, 30, "5 < 6")
//	os.Stdout.Write(pic.Bytes())
//
// A [Document] takes shapes in the order in which they are painted; everything has a
// class, and the style sheet says what it looks like. [Style] has a page, text and a
// grid that can be read in light and in dark mode. An [Axis] finds the place of a value,
// and round values to label. Text is escaped, and a coordinate that is no number
// becomes 0, so that what comes out is always well-formed.
//
// It is a writer for what weir draws, not a library of charts.
package svg
