import type { Ask } from '@isthmus/tunnel';
import type { AdminBackend } from './backend.ts';

/**
 * Answers questions as this process: for its own operators, and for those of members that ask over links. gRPC's libraries take 6 MB, which
 * a process does without until somebody asks.
 * @param scope `reads`: nothing that changes something, for an agent, whose hub asks
 */
export function answersOf(backend: AdminBackend, scope: 'all' | 'reads'): Ask {
  let loaded: Promise<Ask> | undefined;
  return async function* (question, signal) {
    loaded ??= import('./ask.ts').then(({ answered }) => answered(backend, scope));
    // Loading may fail for want of descriptors, and works the next time.
    const answers = await loaded.catch((error) => {
      loaded = undefined;
      throw error;
    });
    yield* answers(question, signal);
  };
}
