import type { Destination } from './destination.ts';

/** What a policy says about a dial, and which of its rules says so. */
export interface PolicyVerdict {
  readonly allowed: boolean;
  /** Empty if no rule matches: then a policy with a list of what is allowed refuses the dial, and any other allows it. */
  readonly rule: string;
}

/** What callers may dial. */
export interface DialPolicy {
  /**
   * @param caller the caller's name; empty if it has none
   * @param addresses what a name was resolved to, at an agent. Without them a name matches rules for hosts and ports only.
   */
  verdict(destination: Destination, caller: string, addresses?: readonly string[]): PolicyVerdict;
}
