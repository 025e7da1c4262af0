/** Talks to the server: one snapshot by REST, then one WebSocket stream, resumed by revision. */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { KernelRequest, Projects, ROUTES, Status, StreamFrame, WhatIfAnswer } from './schema';
import { Action, IRequestError, LOGGED_OUT, LOST, SILENT } from './state';

export interface IStreamListener {
  onSnapshot(status: Status): void;
  onFrame(frame: StreamFrame): void;
  onDisconnected(problem: string): void;
  /** The revision to resume from; null: from the start. */
  readonly revision: number | null;
}

/** A request that the server refused, with the server's message. */
export class RequestError extends Error implements IRequestError {
  constructor(
    message: string,
    readonly field: string | null,
    readonly httpStatus: number
  ) {
    super(message);
  }
}

const FIRST_DELAY_MS = 500;
const MAX_DELAY_MS = 30_000;

/** Full jitter (AWS, "Exponential Backoff And Jitter"), so that tabs do not reconnect in step. */
export function backoffMs(attempt: number, random: () => number = Math.random): number {
  const ceiling = Math.min(MAX_DELAY_MS, FIRST_DELAY_MS * 2 ** attempt);
  return ceiling * (0.5 + random() / 2);
}

export class ApiClient {
  constructor(
    private readonly listener: IStreamListener,
    private readonly settings: ServerConnection.ISettings = ServerConnection.makeSettings()
  ) {}

  /** Connect, and stay connected while the page is visible. */
  start(): void {
    document.addEventListener('visibilitychange', this.onVisibility);
    this.onVisibility();
  }

  stop(): void {
    document.removeEventListener('visibilitychange', this.onVisibility);
    this.pause();
  }

  /** Reconnect now instead of after the back-off delay. */
  retry(): void {
    this.pause();
    this.attempt = 0;
    void this.connect();
  }

  request(kernelId: string, body: KernelRequest): Promise<unknown> {
    return this.call(ROUTES.request, { names: { kernel_id: kernelId }, body });
  }

  release(kernelId: string): Promise<unknown> {
    return this.call(ROUTES.release, { names: { kernel_id: kernelId } });
  }

  act(kernelId: string, action: Exclude<Action, 'request' | 'release' | 'move'>): Promise<unknown> {
    return this.call(ROUTES.act, { names: { kernel_id: kernelId, action }, body: {} });
  }

  /** `kernelId`: the request would replace the share of this kernel. */
  whatIf(body: KernelRequest, kernelId?: string): Promise<WhatIfAnswer> {
    return this.call(ROUTES.whatIf, {
      body,
      query: kernelId === undefined ? {} : { kernel_id: kernelId }
    });
  }

  projects(): Promise<Projects> {
    return this.call(ROUTES.projects);
  }

  private async call<T>(route: IRoute, call: ICall = {}): Promise<T> {
    const text = await rest(this.settings, route, call);
    return (text === '' ? null : JSON.parse(text)) as T;
  }

  private readonly onVisibility = (): void => {
    if (document.hidden) {
      this.pause();
    } else if (this.socket === null && this.timer === null) {
      this.attempt = 0;
      void this.connect();
    }
  };

  private pause(): void {
    this.epoch += 1; // results of calls in flight are ignored
    if (this.timer !== null) {
      window.clearTimeout(this.timer);
      this.timer = null;
    }
    this.socket?.close();
    this.socket = null;
  }

  private async connect(): Promise<void> {
    const epoch = ++this.epoch;
    try {
      // the stream begins with the full state too, but only a REST answer says why there is no
      // stream
      const status = await this.call<Status>(ROUTES.status);
      if (epoch === this.epoch) {
        if (this.listener.revision === null) {
          this.listener.onSnapshot(status);
        }
        this.open(epoch);
      }
    } catch (error) {
      if (epoch === this.epoch) {
        this.lost(errorText(error));
      }
    }
  }

  private open(epoch: number): void {
    const socket = new this.settings.WebSocket(this.streamUrl());
    this.socket = socket;
    socket.onmessage = message => {
      if (epoch === this.epoch) {
        this.attempt = 0;
        this.listener.onFrame(JSON.parse(message.data as string) as StreamFrame);
      }
    };
    socket.onclose = () => {
      if (epoch === this.epoch) {
        this.socket = null;
        this.lost(LOST);
      }
    };
  }

  private streamUrl(): string {
    const query = new URLSearchParams();
    if (this.listener.revision !== null) {
      query.set('since', String(this.listener.revision));
    }
    if (this.settings.appendToken && this.settings.token !== '') {
      query.set('token', this.settings.token);
    }
    const text = query.toString();
    return URLExt.join(this.settings.wsUrl, ROUTES.stream.path) + (text === '' ? '' : `?${text}`);
  }

  private lost(problem: string): void {
    this.listener.onDisconnected(problem);
    this.timer = window.setTimeout(() => {
      this.timer = null;
      void this.connect();
    }, backoffMs(this.attempt++));
  }

  private socket: WebSocket | null = null;
  private timer: number | null = null;
  private attempt = 0;
  private epoch = 0;
}

export interface ICall {
  readonly names?: INames;
  readonly body?: object;
  readonly query?: { readonly [name: string]: string };
}

/**
 * One REST call; returns the response text. Rejects with `RequestError` when the server refused,
 * with `ServerConnection.NetworkError` when it did not respond.
 */
export async function rest(
  settings: ServerConnection.ISettings,
  route: IRoute,
  call: ICall = {}
): Promise<string> {
  const { names = {}, body, query = {} } = call;
  const url =
    URLExt.join(settings.baseUrl, pathWith(route.path, names)) + URLExt.objectToQueryString(query);
  const init = { method: route.verb, body: body === undefined ? undefined : JSON.stringify(body) };
  const response = await ServerConnection.makeRequest(url, init, settings);
  const text = await response.text();
  if (!response.ok) {
    throw refusal(response, text);
  }
  return text;
}

export interface IRoute {
  readonly verb: string;
  readonly path: string;
}

interface INames {
  readonly [name: string]: string;
}

/** A route's path with its parameters: kernels/{kernel_id} → kernels/0123. */
function pathWith(path: string, names: INames): string {
  return path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(names[name]));
}

/** The server's error body (`{"error": {"code", "message", "field"?}}`), else its status line. */
function refusal(response: Response, text: string): RequestError {
  try {
    const { code, message, field } = JSON.parse(text).error;
    return new RequestError(
      code === 'logged-out' ? LOGGED_OUT : String(message),
      field ?? null,
      response.status
    );
  } catch {
    const what =
      response.status === 404
        ? 'The GPU share server extension is not enabled'
        : response.statusText;
    return new RequestError(`${what} (HTTP ${response.status}).`, null, response.status);
  }
}

/** A failed call as one sentence. */
export function errorText(error: unknown): string {
  if (error instanceof RequestError) {
    return error.message;
  }
  return error instanceof ServerConnection.NetworkError
    ? SILENT
    : String(error instanceof Error ? error.message : error);
}
