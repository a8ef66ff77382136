/** What main.ts tells the program in the cluster. */
export interface Options {
  /** The archive of Isthmus' image. */
  readonly image: string;
  /** Keys of WAYS; none: all. */
  readonly ways: readonly string[];
  /** Parts of names of checks and faults; none: all. */
  readonly only: readonly string[];
  readonly short: boolean;
  readonly stay: boolean;
  /** Where it leaves what callers met of the faults, as JSON. */
  readonly outcomes: string;
}
