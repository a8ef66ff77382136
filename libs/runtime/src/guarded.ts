/** Wraps a callback so that what it throws or rejects with is reported. */
export type Guarded = <A extends readonly unknown[]>(act: (...args: A) => unknown) => (...args: A) => void;

/**
 * Guards listeners, timers and promises: nothing else catches what a defect of ours throws there, and it would end the process.
 * @param fault ends what the callbacks serve, and reports the defect
 */
export function guarding(fault: (error: Error) => void): Guarded {
  return (act) =>
    (...args) => {
      try {
        const done = act(...args);
        if (done instanceof Promise) done.catch(fault);
      } catch (error) {
        fault(error as Error);
      }
    };
}
