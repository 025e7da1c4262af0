/** The status bar item. */
import { ReactWidget } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { gpuIcon } from './icon';
import { total } from './summary';
import { IGpuShare } from './tokens';

export class StatusItem extends ReactWidget {
  constructor(
    private readonly gpushare: IGpuShare,
    private readonly showPanel: () => void,
    private readonly trans: TranslationBundle
  ) {
    super();
    this.addClass('jp-mod-highlighted');
    this.addClass('jp-GpuShare-status');
    gpushare.changed.connect(this.update, this);
  }

  dispose(): void {
    this.gpushare.changed.disconnect(this.update, this);
    super.dispose();
  }

  protected render(): JSX.Element {
    const { text, hint } = total(this.gpushare.state, this.trans);
    return (
      <button
        className="jp-GpuShare-status-button"
        title={hint}
        onClick={this.showPanel}
        data-connection={this.gpushare.state.connection}
      >
        <gpuIcon.react tag="span" className="jp-GpuShare-control-icon" />
        <span>{text}</span>
      </button>
    );
  }
}
