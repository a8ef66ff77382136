import type { Ask } from '@isthmus/tunnel';
import type { AdminBackend } from './backend.ts';
import { lazily } from './lazily.ts';

/**
 * Answers questions as this process: for its own operators, and for those of members that ask over links. gRPC's libraries take 6 MB, which
 * a process does without until somebody asks.
 * @param scope `reads`: nothing that changes something, for an agent, whose hub asks
 */
export function answersOf(backend: AdminBackend, scope: 'all' | 'reads'): Ask {
  const load = lazily(async () => (await import('./ask.ts')).answered(backend, scope));
  return async function* (question, signal) {
    yield* (await load())(question, signal);
  };
}
