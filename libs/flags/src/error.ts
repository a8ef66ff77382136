/** An invalid command line. The message is one line that names the flag and says what to do. */
export class FlagError extends Error {
  override readonly name = 'FlagError';
  /** As shown in the message: `--server-port`, or the argument that is no flag. */
  readonly flag: string;

  /** @param flag a flag's name without dashes, or the text in its place */
  constructor(flag: string, problem: string) {
    const shown = /^[a-z]/.test(flag) ? `--${flag}` : flag;
    super(`${shown}: ${problem}`);
    this.flag = shown;
  }
}
