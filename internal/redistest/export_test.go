package redistest

import "context"

// WithPorts makes Start try the given ports first.
func WithPorts(cfg Config, ports ...int) Config {
	cfg.pickPort = func(ctx context.Context, cluster bool) (int, error) {
		if len(ports) == 0 {
			return freePort(ctx, cluster)
		}
		p := ports[0]
		ports = ports[1:]
		return p, nil
	}
	return cfg
}

// Dir is the server's directory.
func (s *Server) Dir() string { return s.dir }

// For the tests of what is parsed and of a server that somebody else runs.
var (
	External          = external
	ParseCall         = parseCall
	ParseCommandStats = parseCommandStats
	EscapeGlob        = escapeGlob
)
