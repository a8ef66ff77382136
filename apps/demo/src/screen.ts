/** Prints the demo's output: plain lines, with colours if the terminal supports them. */
export class Screen {
  readonly #write: (text: string) => void;
  readonly #colours: boolean;

  constructor(write: (text: string) => void, colours: boolean) {
    this.#write = write;
    this.#colours = colours;
  }

  static of(stream: NodeJS.WriteStream, env: NodeJS.ProcessEnv): Screen {
    return new Screen((text) => stream.write(text), stream.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb');
  }

  line(text = ''): void {
    this.#write(`${text}\n`);
  }

  heading(text: string): void {
    this.line(this.#styled('1', text));
  }

  good(text: string): void {
    this.line(this.#styled('32', text));
  }

  bad(text: string): void {
    this.line(this.#styled('31', text));
  }

  faint(text: string): void {
    this.line(this.#styled('2', text));
  }

  #styled(code: string, text: string): string {
    return this.#colours ? `\u001b[${code}m${text}\u001b[0m` : text;
  }
}
