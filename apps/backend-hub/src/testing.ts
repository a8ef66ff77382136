import { deferred } from '@isthmus/runtime';
import type { Wire } from '@isthmus/transport';

/** A wire that carries nothing. One that is busy has a tunnel, and so does not end when it is closed. */
export function idleWire({ busy = false } = {}): Wire {
  const closed = deferred<Error>();
  return {
    dial: () => Promise.reject(new Error('no dial was expected')),
    open: busy ? 1 : 0,
    closed: closed.promise,
    leave() {},
    close() {
      if (!busy) closed.resolve(new Error('closed'));
    },
    destroy: (reason) => closed.resolve(reason),
  };
}
