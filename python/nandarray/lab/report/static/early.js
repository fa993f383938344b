try { const theme = localStorage.getItem("nandarray-theme"); if (theme) document.documentElement.dataset.theme = theme; } catch { /* no storage here */ }
