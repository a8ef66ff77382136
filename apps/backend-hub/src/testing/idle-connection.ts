import type { NextHopConnection } from '@isthmus/transport';

/** A connection that carries nothing. @param options `busy`: it has a tunnel, so it does not end when it is closed */
export function idleConnection({ busy = false } = {}): NextHopConnection {
  const closed = Promise.withResolvers<Error>();
  return {
    dial: () => Promise.reject(new Error('no dial was expected')),
    attach: () => Promise.reject(new Error('no attach was expected')),
    open: busy ? 1 : 0,
    closed: closed.promise,
    leave() {},
    close() {
      if (!busy) closed.resolve(new Error('closed'));
    },
    destroy: (reason) => closed.resolve(reason),
    destroyAndTell: (reason) => closed.resolve(reason),
  };
}
