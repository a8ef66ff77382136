/** What a program has started, to be closed in reverse order, also when a later part fails to start. */
export class Closing {
  readonly #steps: (() => unknown)[] = [];

  defer(step: () => unknown): void {
    this.#steps.push(step);
  }

  /** Runs every step, even after one fails. @throws the first failure */
  async close(): Promise<void> {
    const failures: unknown[] = [];
    for (const step of this.#steps.splice(0).reverse()) {
      try {
        await step();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  /** Starts a program's parts. If one fails, those already started are closed. */
  static async guard<T>(start: (closing: Closing) => Promise<T>): Promise<T> {
    const closing = new Closing();
    try {
      return await start(closing);
    } catch (error) {
      await closing.close().catch(() => {});
      throw error;
    }
  }
}
