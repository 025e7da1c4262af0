/** The dashboard as a main area widget: it polls and renders only while it is visible. */
import { IThemeManager, MainAreaWidget, ReactWidget } from '@jupyterlab/apputils';
import { IStateDB } from '@jupyterlab/statedb';
import { TranslationBundle } from '@jupyterlab/translation';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { gpuIcon } from '../icon';
import { IGpuShare } from '../tokens';
import { Cluster } from './cluster';
import { Chosen, Dashboard, NEEDS, View, VIEWS } from './dashboard';
import { TableName } from './state';

const WIDGET_ID = 'jupyter-gpushare-dashboard';
const KEPT = 'jupyter-gpushare:dashboard';

/** What is saved between visits. */
interface IKept {
  view: View;
  minutes: number;
  chosen: Chosen;
}

export interface IDashboardContext {
  gpushare: IGpuShare;
  trans: TranslationBundle;
  themes: IThemeManager | null;
  memory: IStateDB | null;
}

export class DashboardContent extends ReactWidget {
  constructor(private readonly context: IDashboardContext) {
    super();
    this.addClass('jp-GpuShareDashboard');
    this.cluster = new Cluster(context.gpushare);
    this.cluster.changed.connect(this.redraw, this);
    context.gpushare.changed.connect(this.redraw, this);
    context.themes?.themeChanged.connect(this.redraw, this);
    void this.recall();
  }

  /** Show one of the views; an unknown view changes nothing. */
  turnTo(view: string | undefined): void {
    if (VIEWS.some(one => one === view)) {
      this.keep({ view: view as View });
    }
  }

  dispose(): void {
    this.context.gpushare.changed.disconnect(this.redraw, this);
    this.context.themes?.themeChanged.disconnect(this.redraw, this);
    this.cluster.dispose();
    super.dispose();
  }

  protected onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.look();
  }

  protected onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this.look();
  }

  protected onBeforeHide(msg: Message): void {
    super.onBeforeHide(msg);
    this.cluster.watch([], this.kept.minutes);
  }

  protected onBeforeDetach(msg: Message): void {
    this.cluster.watch([], this.kept.minutes);
    super.onBeforeDetach(msg);
  }

  protected render(): JSX.Element {
    const { gpushare, themes, trans } = this.context;
    return (
      <Dashboard
        state={this.cluster.state}
        status={gpushare.state.status}
        {...this.kept}
        theme={themes?.theme ?? ''}
        onView={view => this.keep({ view })}
        onMinutes={minutes => this.keep({ minutes })}
        onChosen={(table: TableName, columns) =>
          this.keep({ chosen: { ...this.kept.chosen, [table]: columns } })
        }
        onCsv={(table, columns) => this.cluster.csv(table, columns)}
        onRetry={() => this.cluster.refresh()}
        trans={trans}
      />
    );
  }

  private async recall(): Promise<void> {
    const found = (await this.context.memory?.fetch(KEPT)) as Partial<IKept> | undefined;
    this.kept = { ...this.kept, ...found, ...this.said };
    this.recalled = true;
    this.look();
  }

  private keep(changes: Partial<IKept>): void {
    this.kept = { ...this.kept, ...changes };
    this.said = { ...this.said, ...changes };
    if (this.recalled) {
      void this.context.memory?.save(KEPT, { ...this.kept } as never);
    }
    this.look();
  }

  private look(): void {
    if (this.isVisible) {
      this.cluster.watch(NEEDS[this.kept.view], this.kept.minutes);
      this.update();
    }
  }

  private redraw(): void {
    if (this.isVisible) {
      this.update(); // Lumino merges several updates into one
    }
  }

  private readonly cluster: Cluster;
  private kept: IKept = { view: 'map', minutes: 60, chosen: {} };
  /** Choices made before the saved state was loaded override it. */
  private said: Partial<IKept> = {};
  private recalled = false;
}

export function makeDashboard(context: IDashboardContext): MainAreaWidget<DashboardContent> {
  const widget = new MainAreaWidget({ content: new DashboardContent(context) });
  widget.id = WIDGET_ID;
  widget.title.label = context.trans.__('GPU dashboard');
  widget.title.icon = gpuIcon;
  widget.title.closable = true;
  widget.toolbar.hide();
  return widget;
}
