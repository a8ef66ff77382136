import { EventEmitter } from 'node:events';

/** An emitter whose `emit` never throws. If a subscriber throws or rejects, `fault` gets the error, and the others still get the event. */
export class IsolatingEmitter extends EventEmitter {
  readonly #fault: (name: string, error: Error) => void;

  constructor(fault: (name: string, error: Error) => void) {
    super();
    this.#fault = fault;
  }

  override emit(name: string | symbol, ...args: unknown[]): boolean {
    const subscribers = this.rawListeners(name);
    for (const subscriber of subscribers) {
      try {
        const done: unknown = Reflect.apply(subscriber, this, args);
        if (done instanceof Promise) done.catch((error) => this.#fault(String(name), error));
      } catch (error) {
        this.#fault(String(name), error as Error);
      }
    }
    return subscribers.length > 0;
  }
}
