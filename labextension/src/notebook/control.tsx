/** The GPU button in a notebook's toolbar, and its popover to request, change and release. */
import { ReactWidget } from '@jupyterlab/apputils';
import { NotebookPanel } from '@jupyterlab/notebook';
import { TranslationBundle } from '@jupyterlab/translation';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { secondsLeft } from '../format';
import { gpuIcon } from '../icon';
import { problemText } from '../messages';
import { kernelOf } from '../notebooks';
import { kernelActions } from '../panelWidget';
import { Popover } from '../popover';
import { Kernel, Status } from '../schema';
import { IPendingAction } from '../state';
import { kernelHint, kernelSummary } from '../summary';
import { IGpuShare } from '../tokens';
import { IKernelActions, KernelCard } from '../views/kernelCard';
import { useClock } from '../views/notice';
import { ConnectionLine, useChoices } from '../views/panel';

export class GpuControl extends ReactWidget {
  constructor(
    private readonly gpushare: IGpuShare,
    private readonly panel: NotebookPanel,
    private readonly trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-GpuShare-control');
    gpushare.changed.connect(this.update, this);
    panel.sessionContext.kernelChanged.connect(this.update, this);
  }

  dispose(): void {
    this.gpushare.changed.disconnect(this.update, this);
    this.popover?.dispose();
    super.dispose();
  }

  /** Open the popover, or close it when it is open. */
  toggle(): void {
    if (this.popover !== null) {
      this.popover.closeAndReturn();
    } else {
      this.open(false);
    }
  }

  /** Open the popover; `asking`: with the request form. */
  open(asking: boolean): void {
    if (this.popover === null && this.isVisible) {
      const body = new ControlBody(this.gpushare, this.panel, asking, this.trans);
      this.popover = new Popover(body, this.node, this.trans.__("This notebook's GPU share"));
      this.popover.disposed.connect(() => {
        this.popover = null;
        this.update();
      });
      this.popover.open();
      this.update();
    }
  }

  /** Another tab is shown: the popover closes with its notebook. */
  protected onBeforeHide(msg: Message): void {
    super.onBeforeHide(msg);
    this.popover?.dispose();
  }

  protected render(): JSX.Element {
    const kernel = kernelOf(this.panel, this.gpushare.state);
    const stale = this.gpushare.state.connection !== 'live';
    const deadline = kernel?.notice_deadline ?? null;
    return (
      <button
        className="jp-GpuShare-control-button"
        data-state={deadline === null ? kernel?.state : 'notice'}
        data-stale={stale}
        aria-haspopup="dialog"
        aria-expanded={this.popover !== null}
        title={
          stale
            ? problemText(this.gpushare.state.problem, this.trans)
            : kernelHint(kernel, this.trans)
        }
        onClick={() => this.toggle()}
      >
        <gpuIcon.react tag="span" className="jp-GpuShare-control-icon" />
        {deadline !== null && secondsLeft(deadline, Date.now()) > 0 ? (
          <Ticking summary={now => kernelSummary(kernel, now, this.trans)} />
        ) : (
          <span>{kernelSummary(kernel, Date.now(), this.trans)}</span>
        )}
      </button>
    );
  }

  private popover: Popover | null = null;
}

/** The clock runs only while something counts down. */
function Ticking({ summary }: { summary: (now: number) => string }): JSX.Element {
  return <span>{summary(useClock())}</span>;
}

class ControlBody extends ReactWidget {
  constructor(
    private readonly gpushare: IGpuShare,
    private readonly panel: NotebookPanel,
    private readonly asking: boolean,
    private readonly trans: TranslationBundle
  ) {
    super();
    this.actions = kernelActions(gpushare, () => undefined);
    gpushare.changed.connect(this.update, this);
  }

  dispose(): void {
    this.gpushare.changed.disconnect(this.update, this);
    super.dispose();
  }

  protected render(): JSX.Element {
    return (
      <Body
        gpushare={this.gpushare}
        panel={this.panel}
        asking={this.asking}
        actions={this.actions}
        trans={this.trans}
      />
    );
  }

  private readonly actions: IKernelActions;
}

interface IBodyProps {
  gpushare: IGpuShare;
  panel: NotebookPanel;
  asking: boolean;
  actions: IKernelActions;
  trans: TranslationBundle;
}

function Body({ gpushare, panel, asking, actions, trans }: IBodyProps): JSX.Element {
  const { state } = gpushare;
  const kernel = kernelOf(panel, state);
  return (
    <>
      <ConnectionLine state={state} onRetry={() => gpushare.retry()} trans={trans} />
      {state.status !== null && kernel !== null && (
        <Card
          status={state.status}
          kernel={kernel}
          defaultShare={state.defaultShare}
          asked={state.asked[kernel.kernel_id] ?? null}
          asking={asking}
          actions={actions}
          trans={trans}
        />
      )}
      {state.status !== null && kernel === null && (
        <p className="jp-GpuShare-faint">
          {trans.__('No running kernel. Start one, then request a share.')}
        </p>
      )}
    </>
  );
}

interface ICardProps extends Pick<IBodyProps, 'asking' | 'actions' | 'trans'> {
  status: Status;
  kernel: Kernel;
  asked: IPendingAction | null;
  defaultShare: string;
}

function Card(props: ICardProps): JSX.Element {
  const { status, kernel, asked, asking, actions, trans } = props;
  const choices = useChoices(status, props.defaultShare);
  const asks = asking || kernel.state === 'detached';
  return (
    <KernelCard
      key={kernel.kernel_id}
      kernel={kernel}
      choices={choices}
      asked={asked}
      brief={{ asks }}
      {...actions}
      trans={trans}
    />
  );
}
