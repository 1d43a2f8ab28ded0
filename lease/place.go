package lease

// A Place is where a job is.
type Place string

// The places of a job. Nowhere means that no job has the ID: it was never enqueued, was acked, or was removed.
const (
	Nowhere    Place = ""
	Due        Place = "due"
	Processing Place = "processing"
	Dead       Place = "dead"
	Done       Place = "done"
)

func (p Place) String() string {
	if p == Nowhere {
		return "nowhere"
	}
	return string(p)
}

// placeOf reads the scripts' code of a place.
func placeOf(code byte) (Place, bool) {
	switch code {
	case '0':
		return Nowhere, true
	case '1':
		return Due, true
	case '2':
		return Processing, true
	case '3':
		return Dead, true
	case '4':
		return Done, true
	}
	return Nowhere, false
}
